// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "frontend/context_state.hpp"
#include "frontend/extent.hpp"
#include "schedule/layout.hpp"

namespace farandole {

/// One collective call as the user made it.
struct Call {
  const Arguments& arguments;
  const CallOptions& options;
};

/// What the library itself calls on communicators of the caller's, see CallOptions::purpose.
inline constexpr std::uint16_t kSplit = 1, kArgumentCheck = 2, kSetMachine = 3, kClockOffset = 4;

/// Limit on the elements of one call over all ranks; a signature has room for no more.
inline constexpr std::size_t kCountMax = std::size_t{1} << 46;

/// "allreduce: argument 'out' is null, allowed is a buffer."
Error bad_argument(std::string_view call, const std::string& argument, const std::string& given,
                   const std::string& allowed);

/// Chunks in `in` or `out`: one, or one per rank. Chunks of different lengths are named by the
/// caller's counts; counts that only the root knows are empty elsewhere.
Extent extent(const Arguments& arguments, const Group& group);

/// Layouts of `in`, of `out`, and of the chunks of the data.
struct Layouts {
  Layout in, out, chunks;
};
Layouts layouts(const Arguments& arguments, const Group& group, std::int64_t chunk_count);

/// Finds what is wrong with the arguments on this rank alone.
/// Errors    kInvalidArgument naming the argument, what was given and what is allowed.
Result<void> check_call(const Call& call, const Group& group);
/// The part of it that addresses decide; what a checked call asks of memory is known.
Result<void> check_buffers(const Arguments& arguments, const Extent& extents, const Group& group);

}  // namespace farandole
