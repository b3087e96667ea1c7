// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "coordinator/controller.hpp"

namespace farandole::coordinator {

/// Responses that run as one operation, contiguous in one buffer.
struct Batch {
  std::vector<Ready> members;  // at least one
};

/// Packs neighbours into batches of at most `threshold_bytes`. Allreduces fuse if they have the
/// same dtype, reduction, factors, device and set of joined ranks; in host memory only those of
/// less than 1 MiB, even with larger ones in between. Everything else, errors included, stays
/// alone. A group forms one batch for each such combination, whatever its size, with nothing else
/// in it. The result depends only on what is the same on every rank: `own` is not read.
std::vector<Batch> fuse(std::vector<Ready> ready, std::uint64_t threshold_bytes);

}  // namespace farandole::coordinator
