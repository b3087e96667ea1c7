// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "bootstrap/session.hpp"
#include "frontend/event_relay.hpp"
#include "frontend/gathering.hpp"

namespace farandole {

/// The members of the job, and how this rank hears from the other ranks and sends them messages.
///
/// Threads   `members`, `cores` and the functions are constant once the ranks have met; Gathering,
///           EventRelay and Session have locks of their own.
struct Membership {
  Rank self;
  Members members;
  std::map<std::string, int> cores;  // cores_by_host(members)
  Gathering gathering;
  EventRelay relay{gathering};
  std::unique_ptr<Session> session;  // none when ranks are threads
  // Ranks as threads: what a session does between processes.
  std::function<void(const Departure&)> tell_threads;
  std::function<void(std::string_view)> flood;

  /// Takes over the members that have met; this process is `rank`. What the starter says about this
  /// host's ranks serves only for the rendezvous: it may say nothing, or count differently.
  void settle(Rank rank, Members met);
  /// The member that this process is.
  const Member& own() const;
  /// Members on this host.
  int local_size() const;
  /// Cores that this host's ranks can keep busy; 0: unknown.
  int host_cores() const;
  /// Whether this host has more ranks than host_cores(), if that is known.
  bool shares_cores() const;
  /// Floods a message to the relays of all other ranks.
  void tell_all(std::string_view message);
};

}  // namespace farandole
