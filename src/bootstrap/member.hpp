// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "farandole/types.hpp"

namespace farandole {

/// One process of the job, as every other process knows it after rendezvous. `record`, the
/// member record, has what each transport needs to reach it, by keys that begin with its name.
struct Member {
  Rank rank;
  int local_rank = 0;
  std::string host;     // for people
  std::string host_id;  // equal exactly when two members can share memory
  int pid = 0;
  std::map<std::string, std::string> record;
};

using Members = std::vector<Member>;  // index = rank

}  // namespace farandole
