// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "coordinator/controller.hpp"

namespace farandole::coordinator {

/// Responses that run as one operation, in one buffer, one after the other without gaps.
struct Batch {
  std::vector<Ready> members;  // at least one
};

/// Packs neighbours into batches of at most `threshold_bytes`. Allreduces of one dtype, reduction,
/// factor, device and set of joined ranks fuse, in the host's memory those of less than 1 MiB, also
/// past larger ones; everything else, errors too, stays alone. A group is in one batch per dtype
/// whatever its size, and nothing else is in it. Depends on its arguments only, which are the same
/// on every rank: `own` is not looked at.
std::vector<Batch> fuse(std::vector<Ready> ready, std::uint64_t threshold_bytes);

}  // namespace farandole::coordinator
