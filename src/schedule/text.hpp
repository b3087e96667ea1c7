// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "farandole/result.hpp"
#include "schedule/schedule.hpp"

namespace farandole {

/// The schedule in the format of docs/formats/schedule.md. to_text() and then parse_schedule() give
/// back every schedule that verify() accepts unchanged.
std::string to_text(const Schedule& schedule);

/// Limit on the text of one schedule.
inline constexpr std::size_t kScheduleBytesMax = std::size_t{4} << 20;

/// Reads text written by to_text() or by a person. The schedule is well formed but not proved.
///
/// Memory    bounded: limits on bytes, actions, nesting and numbers are in the format's document.
/// Errors    kInvalidArgument naming the line, what was found and what is allowed.
Result<Schedule> parse_schedule(std::string_view text);

}  // namespace farandole
