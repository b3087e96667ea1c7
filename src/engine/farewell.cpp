// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/farewell.hpp"

#include <algorithm>
#include <limits>
#include <sstream>

namespace farandole {
namespace {

constexpr char kCollectives = 'c';
constexpr char kMessages = 'm';

}  // namespace

void Farewell::withdraw_collective(std::uint32_t communicator, std::uint32_t sequence) {
  const auto [first, fresh] = next_sequence.emplace(communicator, sequence);
  first->second = std::min(first->second, sequence);
}

void Farewell::withdraw_message(Peer peer, bool sent, std::uint32_t number) {
  constexpr auto kAll = std::numeric_limits<std::uint32_t>::max();
  const auto [first, fresh] = messages.emplace(peer, Messages{kAll, kAll});
  std::uint32_t& count = sent ? first->second.sent : first->second.received;
  count = std::min(count, number);
}

void Farewell::limit(const Farewell& withdrawn) {
  for (auto& [communicator, next] : next_sequence) {
    const auto found = withdrawn.next_sequence.find(communicator);
    if (found != withdrawn.next_sequence.end()) next = std::min(next, found->second);
  }
  for (auto& [peer, count] : messages) {
    const auto found = withdrawn.messages.find(peer);
    if (found == withdrawn.messages.end()) continue;
    count.sent = std::min(count.sent, found->second.sent);
    count.received = std::min(count.received, found->second.received);
  }
}

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
