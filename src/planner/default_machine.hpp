// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/machine.hpp"
#include "model/message_cost.hpp"

namespace farandole {

/// What is assumed of hosts that nobody has described: ranks of one host, whose messages cost
/// `inside`, and hosts whose messages, costing `between`, meet at one switch.
Machine default_machine(std::int64_t ranks_per_host, std::int64_t hosts, const MessageCost& inside,
                        const MessageCost& between);

}  // namespace farandole
