// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/row.hpp"

// The table of transports. Nothing outside this table and a transport's own folder knows its name:
// who needs one asks here.
namespace farandole {

/// All rows, the faster before the slower.
std::span<const TransportRow> transports();

/// The row of that name, or null.
const TransportRow* find_transport(std::string_view name);

/// Names of the rows that FARANDOLE_TRANSPORT chooses from, or of those whose ranks are threads.
std::vector<std::string_view> transport_names(bool threads = false);

/// "auto, shm or tcp": what FARANDOLE_TRANSPORT may be, for messages.
std::string allowed_transports();

/// What carries messages over this distance where FARANDOLE_TRANSPORT has this value: auto, the
/// name of a row, or one that its row cannot fulfil, which counts as auto.
const TransportRow& transport_for(std::string_view setting, bool same_host);

/// What every transport publishes of this rank for its record.
Result<std::map<std::string, std::string>> publish_transports(Memory& memory, const Doorbell& bell);

/// The row by which this rank reaches each member, by rank; null for itself.
/// Errors    kUnsupported naming a member that it does not reach as it is to.
Result<std::vector<const TransportRow*>> choose_transports(std::string_view setting, Rank self,
                                                           const Members& members);

}  // namespace farandole
