// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace farandole {

/// What a rank asks for when a communicator is split.
struct SplitRequest {
  std::int64_t color = 0, key = 0;
  bool takes_part = false;
  std::uint32_t number = 0;  // the lowest that is free on this rank for a new communicator
  bool operator==(const SplitRequest&) const = default;
};

inline constexpr std::size_t kSplitRequestBytes = 21;

/// Exactly kSplitRequestBytes bytes.
std::string encode(const SplitRequest& request);
/// None if encode() does not write such bytes.
std::optional<SplitRequest> decode_split_request(std::string_view bytes);

}  // namespace farandole
