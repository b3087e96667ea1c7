// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "farandole/types.hpp"

namespace farandole {

/// What a call asks of this rank's memory. The counts are 0 where a buffer is not used.
struct Extent {
  Count in, out;          // elements
  Count in_place_offset;  // where the shorter buffer lies in the longer one, in place
};

}  // namespace farandole
