// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace farandole::shm {

/// Divides the pieces of a message that both of its ends move: the receiver takes pieces from the
/// beginning, the sender from the end. An end takes a piece before it moves it, so that no piece is
/// moved twice. Lies in memory that both map.
///
/// Threads   one of each end.
class Claims {
 public:
  void clear() { taken_.store(0, std::memory_order_relaxed); }

  /// Takes the receiver's next piece of `pieces` in all; false if none is left.
  bool take_first(std::size_t pieces) { return take(pieces, 1).has_value(); }
  /// Takes the sender's next piece of `pieces` in all: its index, or nothing if none is left.
  std::optional<std::size_t> take_last(std::size_t pieces) {
    const auto before = take(pieces, kOneOfSender);
    if (!before) return std::nullopt;
    return pieces - 1 - of_sender(*before);
  }
  /// Takes all pieces that are left, so that the sender gets no more.
  void take_rest(std::size_t pieces) {
    while (take_first(pieces)) {
    }
  }

  bool all_taken(std::size_t pieces) const { return left(taken_.load(), pieces) == 0; }
  /// Pieces that the sender has taken.
  std::size_t of_sender() const { return of_sender(taken_.load()); }

 private:
  static constexpr std::uint64_t kOneOfSender = std::uint64_t{1} << 32;

  static std::size_t of_sender(std::uint64_t taken) { return taken >> 32; }
  static std::size_t left(std::uint64_t taken, std::size_t pieces) {
    const std::size_t all = of_sender(taken) + (taken & (kOneOfSender - 1));
    return pieces - (all < pieces ? all : pieces);  // a corrupt peer may have taken more
  }

  /// Takes one piece; returns the value of taken_ before that, or nothing if none is left.
  std::optional<std::uint64_t> take(std::size_t pieces, std::uint64_t one) {
    std::uint64_t taken = taken_.load();
    do {
      if (left(taken, pieces) == 0) return std::nullopt;
    } while (!taken_.compare_exchange_weak(taken, taken + one));
    return taken;
  }

  std::atomic<std::uint64_t> taken_;  // pieces, the sender's in the upper half
};

}  // namespace farandole::shm
