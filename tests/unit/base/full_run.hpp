// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string_view>

namespace farandole {

/// Whether tests that draw samples are to do all that they can: with `make test-all`.
inline bool full_run() {
  const char* setting = std::getenv("FARANDOLE_TEST_FULL");
  return setting != nullptr && std::string_view(setting) == "1";
}

}  // namespace farandole
