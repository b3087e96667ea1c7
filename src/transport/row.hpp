// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/member.hpp"
#include "bootstrap/session.hpp"
#include "device/cpu/memory.hpp"
#include "farandole/result.hpp"
#include "model/message_cost.hpp"
#include "transport/doorbell.hpp"
#include "transport/transport.hpp"

namespace farandole {

/// What a rank has when its transports are made. All of it outlives the transports.
struct TransportSite {
  Rank self;
  const Members& members;
  Memory& memory;
  Doorbell& doorbell;
  Session& session;
  std::span<const Rank> peers;        // those that this transport serves
  bool peer_memory = true;            // false: peers reach none of this rank's memory; for tests
  std::function<void(Rank)> suspect;  // called in progress() when a peer's connection broke
};

/// What each rank has where all ranks are threads of one process.
struct ThreadRank {
  std::unique_ptr<Memory> memory;
  std::unique_ptr<Doorbell> doorbell;
  std::unique_ptr<Transport> transport;
};

/// One transport. Rows with `threads` are for tests, in which all ranks are threads of one process;
/// FARANDOLE_TRANSPORT chooses from the others.
struct TransportRow {
  std::string_view name;     // in settings and statistics; in tuning files see tuning_name
  std::string_view summary;  // "shared memory inside a host"
  bool within_host;          // it reaches ranks of one host only
  /// Whether `self` can talk to `peer`, judged by their member records.
  bool (*reaches)(const Member& self, const Member& peer) = nullptr;
  /// What peers need to know of this rank, for its member record; keys begin with the row's name.
  Result<std::map<std::string, std::string>> (*publish)(Memory& memory,
                                                        const Doorbell& bell) = nullptr;
  /// Errors    kInvalidArgument naming the setting, kUnsupported, kInternal.
  Result<std::unique_ptr<Transport>> (*create)(const TransportSite& site) = nullptr;
  MessageCost (*cost)(const Distance& distance);
  /// Makes all ranks at once, not connected yet. Such a row needs no other function but `cost`.
  Result<std::vector<ThreadRank>> (*threads)(int rank_count, bool peer_memory) = nullptr;
  /// The name of this transport in tuning files.
  std::string_view tuning_name = name;
};

}  // namespace farandole
