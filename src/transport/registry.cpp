// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/registry.hpp"

#include <algorithm>
#include <array>

#include "transport/fault/row.hpp"
#include "transport/inproc/row.hpp"
#include "transport/shm/row.hpp"
#include "transport/tcp/row.hpp"

namespace farandole {
namespace {

constexpr std::array kRows = {shm::kRow, tcp::kRow, inproc::kRow, inproc::kKernelRow, fault::kRow};

/// Whether a job with this value of FARANDOLE_TRANSPORT may use the row.
bool allowed(const TransportRow& row, std::string_view setting) {
  return row.threads == nullptr && (setting == "auto" || setting == row.name);
}

}  // namespace

std::span<const TransportRow> transports() {
  return kRows;
}

const TransportRow* find_transport(std::string_view name) {
  const auto found = std::ranges::find(kRows, name, &TransportRow::name);
  return found == kRows.end() ? nullptr : &*found;
}

std::vector<std::string_view> transport_names(bool threads) {
  std::vector<std::string_view> names;
  for (const TransportRow& row : kRows) {
    if (threads == (row.threads != nullptr)) names.push_back(row.name);
  }
  return names;
}

std::string allowed_transports() {
  const std::vector<std::string_view> names = transport_names();
  std::string text = "auto";
  for (const std::string_view name : names) {
    text += (name == names.back() ? " or " : ", ") + std::string(name);
  }
  return text;
}

const TransportRow& transport_for(std::string_view setting, bool same_host) {
  const TransportRow* named = find_transport(setting);
  if (named != nullptr && (same_host || !named->within_host)) return *named;
  const auto suits = [&](const TransportRow& row) {
    return allowed(row, "auto") && (same_host || !row.within_host);
  };
  return *std::ranges::find_if(kRows, suits);
}

Result<std::map<std::string, std::string>> publish_transports(Memory& memory,
                                                              const Doorbell& bell) {
  std::map<std::string, std::string> all;
  for (const TransportRow& row : kRows) {
    if (row.publish == nullptr) continue;
    auto its = row.publish(memory, bell);
    if (!its) return its.error();
    all.merge(*its);
  }
  return all;
}

Result<std::vector<const TransportRow*>> choose_transports(std::string_view setting, Rank self,
                                                           const Members& members) {
  const Member& own = members[static_cast<std::size_t>(self.value())];
  std::vector<const TransportRow*> chosen(members.size(), nullptr);
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const Member& member = members[rank];
    if (member.rank == self) continue;
    const auto suits = [&](const TransportRow& row) {
      return allowed(row, setting) && row.reaches(own, member);
    };
    const auto found = std::ranges::find_if(kRows, suits);
    if (found == kRows.end()) {
      return Error{ErrorKind::kUnsupported, "FARANDOLE_TRANSPORT is '" + std::string(setting) +
                                                "', by which rank " + std::to_string(self.value()) +
                                                " on " + own.host + " does not reach rank " +
                                                std::to_string(rank) + " on " + member.host +
                                                "; allowed is " + allowed_transports() + "."};
    }
    chosen[rank] = &*found;
  }
  return chosen;
}

}  // namespace farandole
