// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace farandole {

std::string host_name();

/// Equal in two processes exactly when each can open the other's /proc/<pid>/fd and reach it over
/// the loopback interface: one boot of one kernel, one network and one pid name space.
/// FARANDOLE_HOST_ID overrides it.
std::string host_identity();

}  // namespace farandole
