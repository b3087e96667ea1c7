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
extern const AlgorithmInfo kAllreduceReduceBroadcast;
extern const AlgorithmInfo kAllreduceDoubleBinaryTree;
extern const AlgorithmInfo kAllreduceTwoLevel;
extern const AlgorithmInfo kAllreduceHierarchical;
extern const AlgorithmInfo kAllreduceDirect;
extern const AlgorithmInfo kAllreduceOneShot;
extern const AlgorithmInfo kReduceDirect;
extern const AlgorithmInfo kReduceChain;
extern const AlgorithmInfo kReduceBinomial;
extern const AlgorithmInfo kReduceKnomial;
extern const AlgorithmInfo kReduceRabenseifner;
extern const AlgorithmInfo kReducePipelinedChain;
extern const AlgorithmInfo kReduceDoubleBinaryTree;
extern const AlgorithmInfo kBroadcastDirect;
extern const AlgorithmInfo kBroadcastChain;
extern const AlgorithmInfo kBroadcastBinomial;
extern const AlgorithmInfo kBroadcastKnomial;
extern const AlgorithmInfo kBroadcastScatterAllgather;
extern const AlgorithmInfo kBroadcastPipelinedChain;
extern const AlgorithmInfo kBroadcastDoubleBinaryTree;
extern const AlgorithmInfo kReducescatterRing;
extern const AlgorithmInfo kReducescatterHalving;
extern const AlgorithmInfo kReducescatterPairwise;
extern const AlgorithmInfo kReducescatterHierarchical;
extern const AlgorithmInfo kReducescatterDirect;
extern const AlgorithmInfo kAllgatherRing;
extern const AlgorithmInfo kAllgatherBruck;
extern const AlgorithmInfo kAllgatherHierarchical;
extern const AlgorithmInfo kAllgatherDirect;
extern const AlgorithmInfo kGatherDirect;
extern const AlgorithmInfo kGatherBinomial;
extern const AlgorithmInfo kScatterDirect;
extern const AlgorithmInfo kScatterBinomial;
extern const AlgorithmInfo kAlltoallPairwise;
extern const AlgorithmInfo kAlltoallBruck;
extern const AlgorithmInfo kAlltoallDirect;
extern const AlgorithmInfo kBarrierDissemination;

}  // namespace farandole
