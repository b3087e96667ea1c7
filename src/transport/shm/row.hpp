// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/row.hpp"

namespace farandole::shm {

Result<std::map<std::string, std::string>> publish_row(Memory& memory, const Doorbell& bell);
Result<std::unique_ptr<Transport>> create_row(const TransportSite& site);
bool reaches_row(const Member& self, const Member& peer);
MessageCost cost_of(const Distance& distance);

inline constexpr TransportRow kRow{
    .name = "shm",
    .summary = "shared memory inside a host",
    .within_host = true,
    .reaches = &reaches_row,
    .publish = &publish_row,
    .create = &create_row,
    .cost = &cost_of,
};

}  // namespace farandole::shm
