// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "bootstrap/member.hpp"
#include "farandole/farandole.hpp"

namespace farandole {

/// How far this host's monotonic clock is behind that of rank 0's host. Collective over the world.
/// On rank 0's host it is 0. The lowest rank of each other host asks rank 0 a few times and takes
/// the answer that came back soonest, assuming that both ways took equally long, so that the error
/// is at most half of that round trip.
///
/// Errors    those of the messages.
/// Source    [Mills91] (NTP's clock filter).
Result<std::chrono::nanoseconds> clock_offset(Communicator& world, const Members& members);

}  // namespace farandole
