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
  if (!state_->origin.here()) return state_->origin.error("start_timeline");
  const std::lock_guard lock(state_->timeline_mutex);
  if (state_->timeline) {
    return Error{ErrorKind::kInvalidArgument,
                 "start_timeline: one is being recorded already; stop_timeline() ends it."};
  }
  const Member& self = state_->members[static_cast<std::size_t>(rank().value())];
  auto opened = coordinator::Timeline::open({.path = path_of_rank(path, rank().value()),
                                             .rank = rank().value(),
                                             .size = size(),
                                             .host = self.host,
                                             .pid = self.pid,
                                             .clock_offset_ns = state_->clock_offset_ns.load()});
  if (!opened) return opened.error();
  state_->timeline = *std::move(opened);
  state_->timeline_on = true;
  return {};
}

Result<void> Context::stop_timeline() {
  if (!state_->origin.here()) return state_->origin.error("stop_timeline");
  std::shared_ptr<coordinator::Timeline> ended;
  {
    const std::lock_guard lock(state_->timeline_mutex);
    ended = std::move(state_->timeline);
    state_->timeline_on = false;
  }
  if (ended) return ended->close();
  return Error{ErrorKind::kInvalidArgument, "stop_timeline: none is being recorded."};
}

}  // namespace farandole
