// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "farandole/farandole.hpp"

namespace farandole {

// Adaptive summation of gradients: ranks exchange whole vectors, first with the neighbour, then
// twice as far each time, and both combine a and b to
//
//   (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b
//
// which is their sum where they are orthogonal and their mean where they are equal. Ranks from the
// largest power of two on send their vectors to ranks 0, 1 and so on, and get the result back.
//
//   rounds   lg p, two more if p is no power of two
//   sent     lg p times the bytes
//   scratch  the bytes once
//   needs    float32 or float64; a.b is added up in float64; equal bits on every rank
//   source   [Maleki21] eq. 3 and fig. 3
//
/// In place, over all ranks.
///
/// Errors    those of Communicator::batch.
/// Blocking  until this rank has the sum.
Result<void> adasum(Communicator& communicator, std::span<float> values, const std::string& name);
Result<void> adasum(Communicator& communicator, std::span<double> values, const std::string& name);

}  // namespace farandole
