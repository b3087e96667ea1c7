// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "farandole/result.hpp"

namespace farandole {

/// Makes sure that this process can open `count` more files. If needed it raises the soft limit, as
/// far as the hard limit allows.
///
/// Errors    kInvalidArgument naming the limit, what is open, and what `purpose` needs.
Result<void> make_room_for_descriptors(std::size_t count, const std::string& purpose);

/// Whether errno says that no descriptors are left.
bool out_of_descriptors(int error);
/// The error to return then.
Error descriptor_error(const std::string& purpose);

}  // namespace farandole
