// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/row.hpp"

// The table of transports. Only this table and a transport's own folder know its name; other code
// asks here.
namespace farandole {

/// All rows: those that users choose from, the faster before the slower, then those for tests.
std::span<const TransportRow> transports();

/// The row of that name, or null.
const TransportRow* find_transport(std::string_view name);

/// Names of the rows that FARANDOLE_TRANSPORT chooses from, or, if `threads`, of those whose ranks
/// are threads.
std::vector<std::string_view> transport_names(bool threads = false);

/// "auto, shm or tcp": the values that FARANDOLE_TRANSPORT may have, for messages.
std::string allowed_transports();

/// The transport between two ranks, of the same host or not, if FARANDOLE_TRANSPORT is `setting`:
/// auto or the name of a row. A name whose row does not serve that distance counts as auto.
const TransportRow& transport_for(std::string_view setting, bool same_host);

/// What all transports publish in this rank's member record.
Result<std::map<std::string, std::string>> publish_transports(Memory& memory, const Doorbell& bell);

/// The row through which this rank reaches each member, by rank; null for itself.
///
/// Errors    kUnsupported naming a member that no row allowed by `setting` reaches.
Result<std::vector<const TransportRow*>> choose_transports(std::string_view setting, Rank self,
                                                           const Members& members);

}  // namespace farandole
