// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "bootstrap/invalid.hpp"
#include "farandole/result.hpp"

namespace farandole {

/// Adds `amount` to the number that a store holds under `key`: `digits`, or nothing yet.
///
/// Errors    kInvalidArgument if the store holds something else there, or the sum is too large.
inline Result<std::int64_t> add_to_text(std::string_view digits, std::int64_t amount,
                                        const std::string& key) {
  std::int64_t number = 0;
  const char* const last = digits.data() + digits.size();
  const auto [end, failure] = std::from_chars(digits.data(), last, number);
  std::int64_t sum = 0;
  const bool good = digits.empty() || (failure == std::errc() && end == last);
  if (good && !__builtin_add_overflow(number, amount, &sum)) return sum;
  return invalid("the store cannot add " + std::to_string(amount) + " to what is under '" + key +
                 "'.");
}

}  // namespace farandole
