// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/schedule.hpp"

namespace farandole {

/// Appends rounds of empty messages, a dissemination barrier, so that no rank ends before every
/// rank has done everything that comes before: no rank can then have ended well while another one
/// still finds an error. With two ranks and a root, one message against the direction of the data
/// is enough.
Schedule synchronized(Schedule schedule);

}  // namespace farandole
