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

/// Purposes of the library's own calls on the user's communicators, see CallOptions::purpose.
inline constexpr std::uint16_t kSplit = 1, kArgumentCheck = 2, kSetMachine = 3, kClockOffset = 4;

/// Limit on the elements of one call over all ranks; fits into the `count` of a signature.
inline constexpr std::size_t kCountMax = std::size_t{1} << 46;

/// "allreduce: argument 'out' is null, allowed is a buffer."
Error bad_argument(std::string_view call, const std::string& argument, const std::string& given,
                   const std::string& allowed);

/// What the call asks of this rank's buffers. Each holds one chunk, or one per rank. The caller's
/// counts give the lengths if chunks differ; counts that only the root knows are empty on other
/// ranks.
Extent extent(const Arguments& arguments, const Group& group);

/// Layouts of `in`, of `out`, and of the chunks of the data.
struct Layouts {
  Layout in, out, chunks;
};
Layouts layouts(const Arguments& arguments, const Group& group, std::int64_t chunk_count);

/// Checks the arguments, as far as this rank can do so alone.
///
/// Errors    kInvalidArgument naming the argument, what was given and what is allowed.
Result<void> check_call(const Call& call, const Group& group);
/// The part of check_call() that depends on addresses, for a call whose extents are known.
Result<void> check_buffers(const Arguments& arguments, const Extent& extents, const Group& group);

}  // namespace farandole
