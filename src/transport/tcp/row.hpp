// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/row.hpp"

namespace farandole::tcp {

Result<std::unique_ptr<Transport>> create_row(const TransportSite& site);
MessageCost cost_of(const Distance& distance);

/// It publishes nothing: the control plane knows how to reach each rank.
inline constexpr TransportRow kRow{
    .name = "tcp",
    .summary = "TCP, also between hosts",
    .within_host = false,
    .reaches = [](const Member&, const Member&) { return true; },
    .publish = nullptr,
    .create = &create_row,
    .cost = &cost_of,
};

}  // namespace farandole::tcp
