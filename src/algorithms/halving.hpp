// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "schedule/builder.hpp"

namespace farandole {

/// Recursive halving over m positions, a power of two: in exchange k, positions 2^k apart split
/// what they share, and the one with bit k set keeps the upper half. Neighbours come first, so
/// the largest messages go the shortest way. A position ends with the chunk whose number is its
/// own with the bits reversed.
class Halving {
 public:
  Halving(std::int64_t m, Expr position) : m_(m), position_(std::move(position)) {}

  int exchanges() const {
    int k = 0;
    while ((m_ >> k) > 1) ++k;
    return k;
  }
  Expr peer(int k) const { return position_ ^ (std::int64_t{1} << k); }
  /// Chunks in each half of exchange k; then the first chunk of the half kept and of the half sent.
  std::int64_t half(int k) const { return m_ >> (k + 1); }
  /// 1 where the upper half is kept.
  Expr bit(int k) const { return position_ / (std::int64_t{1} << k) % 2; }
  Expr own(int k) const { return shared(k) + bit(k) * half(k); }
  Expr given(int k) const { return shared(k) + (bit(k) + 1) % 2 * half(k); }

 private:
  Expr shared(int k) const { return k == 0 ? Expr(0) : own(k - 1); }

  std::int64_t m_;
  Expr position_;
};

}  // namespace farandole
