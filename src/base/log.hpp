// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace farandole {

enum class LogLevel : std::uint8_t { kError, kWarning, kInfo, kDebug };

/// Writes one line to standard error, "farandole: error: ...", if FARANDOLE_LOG asks for its level.
/// The code that decides what an error means logs it, once; an error that is returned is not
/// logged.
///
/// Threads   any; lines do not mix.
/// Blocking  as standard error does. Not for the hot path.
void log(LogLevel level, std::string_view message);

}  // namespace farandole
