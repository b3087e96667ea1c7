// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "farandole/result.hpp"

namespace farandole {

/// The caller's mistake, in a whole sentence.
inline Error invalid(const std::string& message) {
  return Error{ErrorKind::kInvalidArgument, message};
}

}  // namespace farandole
