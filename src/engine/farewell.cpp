// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/farewell.hpp"

#include <sstream>

namespace farandole {
namespace {

constexpr char kCollectives = 'c';
constexpr char kMessages = 'm';

}  // namespace

std::string Farewell::text() const {
  std::ostringstream text;
  for (const auto& [communicator, next] : next_sequence) {
    text << kCollectives << ' ' << communicator << ' ' << next << ' ';
  }
  for (const auto& [with, count] : messages) {
    text << kMessages << ' ' << with.first << ' ' << with.second << ' ' << count.sent << ' '
         << count.received << ' ';
  }
  return text.str();
}

Farewell Farewell::parse(std::string_view text) {
  Farewell farewell;
  std::istringstream words{std::string(text)};
  char kind = 0;
  std::uint32_t communicator = 0;
  while (words >> kind >> communicator) {
    if (kind == kCollectives) {
      std::uint32_t next = 0;
      if (words >> next) farewell.next_sequence[communicator] = next;
    } else {
      std::int32_t peer = 0;
      Messages count;
      if (words >> peer >> count.sent >> count.received) {
        farewell.messages[{communicator, peer}] = count;
      }
    }
  }
  return farewell;
}

}  // namespace farandole
