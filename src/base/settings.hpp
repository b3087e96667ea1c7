// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/result.hpp"

namespace farandole {

/// One environment variable of the library. Every one is declared in settings.cpp; docs and
/// `farandole doctor` print the table.
struct Setting {
  enum class Type : std::uint8_t { kText, kInteger, kSeconds, kBytes, kFlag };
  std::string_view name;  // "FARANDOLE_TIMEOUT"
  Type type;
  std::string_view default_value;
  double low, high;  // kInteger, kSeconds, kBytes: allowed range, inclusive
  std::string_view help;
};

std::span<const Setting> settings();

/// The value in force: the environment's, or the default. kBytes accepts KiB, MiB, GiB, KB, MB.
/// Errors    kInvalidArgument naming the variable, its value and what is allowed.
Result<std::string> text_setting(std::string_view name);
Result<double> number_setting(std::string_view name);  // kInteger, kSeconds, kBytes
Result<bool> flag_setting(std::string_view name);      // 0, 1, true, false, yes, no, on, off

/// A sentence for each environment variable that begins as ours do but is no setting; it names the
/// nearest setting. Variables for tests, which have TEST after the first _, are left out.
std::vector<std::string> unknown_settings();

}  // namespace farandole
