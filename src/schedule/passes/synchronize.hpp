// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/schedule.hpp"

namespace farandole {

/// Appends rounds of empty messages, the dissemination barrier, so that no rank ends before every
/// rank has done all that comes before: then none can have ended well while another one still finds
/// out that something is wrong. Of two ranks with a root, one message tells what data did not.
Schedule synchronized(Schedule schedule);

}  // namespace farandole
