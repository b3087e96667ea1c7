// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "trace/timeline.hpp"

// The text of a timeline file: pieces of JSON that are appended to a string.
namespace farandole::coordinator {

// Perfetto takes process 0 and thread 0 for the idle ones (google/perfetto#394, #560).
inline constexpr std::uint32_t kMarksThread = 1;
inline constexpr std::uint32_t kFirstTensorThread = 2;

inline std::int32_t process_of(std::int32_t rank) {
  return rank + 1;
}

template <class Number>
void append_number(std::string& text, Number number) {
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  text.append(digits.data(), end);
}

/// "12.345" of 12,345 ns.
void append_us(std::string& text, std::int64_t ns);
/// As a JSON string; each byte that is not valid UTF-8 becomes U+FFFD.
void append_quoted(std::string& text, std::string_view value);
/// Names a thread or a process.
void append_metadata(std::string& text, std::string_view kind, std::int32_t rank,
                     std::uint32_t thread, std::string_view name);
/// What the file starts with, up to the first events.
std::string opening(const TimelineOptions& options);

}  // namespace farandole::coordinator
