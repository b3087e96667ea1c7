// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <unistd.h>

#include <array>
#include <string>

#include "base/settings.hpp"

namespace farandole {
namespace {

constexpr std::array<std::string_view, 4> kLevels = {"error", "warning", "info", "debug"};

/// Levels below this number are written; an unknown setting counts as the default.
std::size_t levels_written() {
  const auto setting = text_setting("FARANDOLE_LOG");
  for (std::size_t i = 0; i < kLevels.size(); ++i) {
    if (setting && *setting == kLevels[i]) return i + 1;
  }
  return setting && *setting == "off" ? 0 : 2;
}

}  // namespace

void log(LogLevel level, std::string_view message) {
  const auto index = static_cast<std::size_t>(level);
  if (index >= levels_written()) return;
  std::string line = "farandole: " + std::string(kLevels[index]) + ": ";
  line.append(message).push_back('\n');
  // One write, so that lines of several processes do not mix. A failure cannot be reported.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace farandole
