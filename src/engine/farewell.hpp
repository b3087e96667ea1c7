// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace farandole {

/// What a rank had started when it left on purpose, so that those who stay know what of it still
/// comes. Communicators are named by their numbers.
struct Farewell {
  struct Messages {
    std::uint32_t sent = 0, received = 0;
  };
  std::map<std::uint32_t, std::uint32_t> next_sequence;  // of collectives
  // Point to point, by communicator and rank of the peer in it.
  std::map<std::pair<std::uint32_t, std::int32_t>, Messages> messages;

  std::string text() const;
  /// Reads what text() wrote; anything else says that nothing was started.
  static Farewell parse(std::string_view text);
};

}  // namespace farandole
