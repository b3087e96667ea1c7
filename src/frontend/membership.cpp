// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/membership.hpp"

#include <algorithm>
#include <utility>

#include "frontend/cores.hpp"

namespace farandole {

void Membership::settle(Rank rank, Members met) {
  self = rank;
  members = std::move(met);
  cores = cores_by_host(members);
}

const Member& Membership::own() const {
  return members[static_cast<std::size_t>(self.value())];
}

int Membership::local_size() const {
  return static_cast<int>(std::ranges::count(members, own().host_id, &Member::host_id));
}

int Membership::host_cores() const {
  const auto found = cores.find(own().host_id);
  return found == cores.end() ? 0 : found->second;
}

bool Membership::shares_cores() const {
  const int here = host_cores();
  return here > 0 && local_size() > here;
}

void Membership::tell_all(std::string_view message) {
  if (session) {
    session->flood(message);
  } else {
    flood(message);
  }
}

}  // namespace farandole
