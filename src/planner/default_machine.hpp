// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/machine.hpp"

namespace farandole {

/// What is assumed of hosts of which nobody has given a description: that ranks of one host meet in
/// its memory, or over loopback, and hosts by TCP over one switch. The constants decide between
/// algorithms well on usual machines; they predict no times. `cores`: of each host; 0: enough.
Machine default_machine(std::int64_t ranks_per_host, std::int64_t hosts, bool shared_memory,
                        std::int64_t cores = 0);

}  // namespace farandole
