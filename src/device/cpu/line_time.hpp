// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>

namespace farandole {

/// How long a cache line takes from one core of this host to another, one way: what a message of a
/// few bytes takes at least. Measured between two threads that are bound to these cores, in about a
/// millisecond; a median, since either may lose its core to somebody else. Cores that share a cache
/// take 20 to 70 ns, others 100 to 300.
///
/// None if the cores are the same, if a thread cannot be bound to its core, or if the other one did
/// not answer within `give_up`.
///
/// Threads   any.
/// Blocking  for about a millisecond, or until `give_up` has passed.
std::optional<std::chrono::duration<double>> line_time(
    int core, int other, std::chrono::milliseconds give_up = std::chrono::seconds(1));

}  // namespace farandole
