// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/handshake.hpp"
#include "bootstrap/member.hpp"
#include "bootstrap/socket.hpp"
#include "bootstrap/wire.hpp"
#include "farandole/job.hpp"

namespace farandole {

/// One process as it presents itself to rank 0.
struct Registration {
  Member member;
  Endpoint listener;  // where it accepts connections
  int size = 0;       // of the job, as it was told
};

/// What rank 0 hands out: where each rank is, and a random name for this run of the job, so that
/// processes left from an earlier run with the same id cannot join.
struct Roster {
  std::string run;
  Members members;
  std::vector<Endpoint> listeners;  // index = rank
};

std::string encode(const Registration& registration);
Result<Registration> decode_registration(std::string_view bytes);
std::string encode(const Roster& roster);
Result<Roster> decode_roster(std::string_view bytes);

void write(Writer& writer, const Member& member);
Member read_member(Reader& reader);

/// "rank 3 (host n7, pid 4711)"
std::string describe(const Member& member);
/// "ranks 2, 5-7", "rank 2"; long lists end in "and 90 more".
std::string describe(const std::vector<int>& ranks);
/// "30 s", "0.5 s"
std::string describe(std::chrono::milliseconds time);

}  // namespace farandole
