// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/machine.hpp"
#include "model/message_cost.hpp"

namespace farandole {

/// The machine that is assumed if none was described: messages between ranks of one host cost
/// `inside`, messages between hosts, which one switch joins, cost `between`.
Machine default_machine(std::int64_t ranks_per_host, std::int64_t hosts, const MessageCost& inside,
                        const MessageCost& between);

}  // namespace farandole
