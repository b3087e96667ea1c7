// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "trace/event_text.hpp"

#include <algorithm>

namespace farandole::coordinator {
namespace {

/// Bytes of the well-formed UTF-8 character that `text` starts with; 0 if there is none.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const std::size_t count = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (text.size() < count) return 0;
  // Limits of the second byte: no overlong form, no surrogate, nothing beyond U+10FFFF.
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < count; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  return count;
}

}  // namespace

void append_us(std::string& text, std::int64_t ns) {
  append_number(text, ns / 1000);
  const auto rest = static_cast<int>(ns % 1000);
  text += {'.', static_cast<char>('0' + rest / 100), static_cast<char>('0' + rest / 10 % 10),
           static_cast<char>('0' + rest % 10)};
}

void append_quoted(std::string& text, std::string_view value) {
  text += '"';
  while (!value.empty()) {
    const std::size_t bytes = character_bytes(value);
    const auto first = static_cast<unsigned char>(value[0]);
    if (bytes == 0) {
      text += "\\ufffd";
    } else if (first == '"' || first == '\\') {
      text += {'\\', value[0]};
    } else if (first < 0x20) {
      constexpr std::string_view kHex = "0123456789abcdef";
      text += first < 0x10 ? "\\u000" : "\\u001";
      text += kHex[first % 16];
    } else {
      text += value.substr(0, bytes);
    }
    value.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  text += '"';
}

void append_metadata(std::string& text, std::string_view kind, std::int32_t rank,
                     std::uint32_t thread, std::string_view name) {
  text.append(R"({"ph":"M","name":")").append(kind).append(R"(","pid":)");
  append_number(text, process_of(rank));
  text += R"(,"tid":)";
  append_number(text, thread);
  text += R"(,"args":{"name":)";
  append_quoted(text, name);
  text += "}}";
}

std::string opening(const TimelineOptions& options) {
  std::string text = R"({"otherData":{"format":"farandole timeline","version":1,"rank":)";
  append_number(text, options.rank);
  text += R"(,"size":)";
  append_number(text, options.size);
  text += R"(,"host":)";
  append_quoted(text, options.host);
  text += R"(,"pid":)";
  append_number(text, options.pid);
  text += R"(,"clock":"CLOCK_MONOTONIC","clock_offset_ns":)";
  append_number(text, options.clock_offset_ns);
  text += "},\n\"traceEvents\":[\n";
  append_metadata(text, "process_name", options.rank, kMarksThread,
                  "rank " + std::to_string(options.rank) + " (" + options.host + ", pid " +
                      std::to_string(options.pid) + ")");
  text += R"(,
{"ph":"M","name":"process_sort_index","pid":)";
  append_number(text, process_of(options.rank));
  text += R"(,"args":{"sort_index":)";
  append_number(text, options.rank);
  text += "}},\n";
  append_metadata(text, "thread_name", options.rank, kMarksThread, "marks");
  return text;
}

}  // namespace farandole::coordinator
