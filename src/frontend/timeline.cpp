// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "trace/timeline.hpp"

#include <string>

#include "farandole/farandole.hpp"
#include "frontend/context_state.hpp"

namespace farandole {
namespace {

std::string path_of_rank(std::string path, int rank) {
  constexpr std::string_view kPlace = "{rank}";
  const std::string number = std::to_string(rank);
  if (const auto place = path.find(kPlace); place != std::string::npos) {
    return path.replace(place, kPlace.size(), number);
  }
  const auto slash = path.rfind('/');
  const auto dot = path.rfind('.');
  const bool suffix = dot != std::string::npos && (slash == std::string::npos || dot > slash + 1);
  return path.insert(suffix ? dot : path.size(), ".rank-" + number);
}

}  // namespace

Result<void> Context::start_timeline(const std::string& path) {
  if (!state_->environment.origin.here()) return state_->environment.origin.error("start_timeline");
  const Member& self = state_->membership.own();
  Observability& observability = state_->observability;
  return observability.start_timeline([&] {
    return coordinator::Timeline::open({.path = path_of_rank(path, rank().value()),
                                        .rank = rank().value(),
                                        .size = size(),
                                        .host = self.host,
                                        .pid = self.pid,
                                        .clock_offset_ns = observability.clock_offset_ns.load()});
  });
}

Result<void> Context::stop_timeline() {
  if (!state_->environment.origin.here()) return state_->environment.origin.error("stop_timeline");
  if (const auto ended = state_->observability.stop_timeline()) return ended->close();
  return Error{ErrorKind::kInvalidArgument, "stop_timeline: none is being recorded."};
}

}  // namespace farandole
