// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "algorithms/registry.hpp"

// The rows that registry.cpp lists, each defined in the file of its algorithm.
namespace farandole {

extern const AlgorithmInfo kAllreduceRing;
extern const AlgorithmInfo kAllreduceRingBidirectional;
extern const AlgorithmInfo kAllreduceRecursiveDoubling;
extern const AlgorithmInfo kAllreduceRabenseifner;
extern const AlgorithmInfo kAllreduceDirect;
extern const AlgorithmInfo kReducescatterRing;
extern const AlgorithmInfo kReducescatterDirect;
extern const AlgorithmInfo kAllgatherRing;
extern const AlgorithmInfo kAllgatherDirect;
extern const AlgorithmInfo kBroadcastBinomial;
extern const AlgorithmInfo kBarrierDissemination;

}  // namespace farandole
