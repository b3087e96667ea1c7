// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <vector>

#include "bootstrap/listener.hpp"
#include "bootstrap/roster.hpp"
#include "farandole/job.hpp"
#include "farandole/result.hpp"

namespace farandole {

/// Opens this process's listener: rank 0's at the launcher's socket or the first free port of the
/// job, the others' at any port, on Job::interface if that is set. If the job's address is
/// "localhost" or a loopback address, this process listens on loopback only, out of reach of other
/// hosts. Any other name that this host resolves to loopback, as Debian does its own name, does not
/// count, since other hosts may resolve it to a real address. If a store finds rank 0, a job on one
/// host listens on loopback. `published` becomes what the others are told; its host is empty if
/// that is not known yet.
///
/// Errors    kInvalidArgument naming address and ports when none is free.
Result<Descriptor> open_listener(const Job& job, Endpoint& published);

/// Brings all ranks of the job together at rank 0 and gives each the same roster. `self` is this
/// process. `meeting` is where the others look for rank 0; none: at the job's address and ports.
/// After a failure `absent` has, at rank 0, the ranks that may still come and have not been told.
///
/// Errors    as Session::start().
/// Blocking  rank 0 until `deadline`, and 1 s more to tell a failure; the others until `deadline`
///           to find rank 0, then for at most Job::start_timeout and 5 s more.
Result<Roster> rendezvous(const Job& job, std::vector<Endpoint> meeting, Listener& listener,
                          Registration self, Deadline deadline, std::set<int>& absent);

/// The two sides of it: rank 0, and the others.
Result<Roster> assemble(const Job& job, Listener& listener, Registration self, Deadline deadline,
                        std::set<int>& absent);
Result<Roster> attend(const Job& job, std::vector<Endpoint> meeting, Listener& listener,
                      Registration self, Deadline deadline);

/// Control messages of the rendezvous.
enum class RendezvousFrame : std::uint8_t { kRegister = 1, kRoster = 2, kFailure = 3 };
inline constexpr std::size_t kRegistrationBytesMax = 64 << 10;
inline constexpr std::size_t kRosterBytesMax = 64 << 20;
/// A sentence for errors of ranks that do not find each other, if the job's address is the loopback
/// of this host; else nothing.
std::string loopback_hint(const Job& job);
std::string encode_failure(const Error& error);
Error decode_failure(std::string_view bytes);

}  // namespace farandole
