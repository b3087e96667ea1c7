// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/registry.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace farandole {
namespace {

/// A member of a host that has published what shared memory asks for, or not.
Member member_of(int rank, const char* host, bool publishes = true) {
  Member member{.rank = Rank{rank}, .host = host, .host_id = host, .record = {}};
  if (publishes) member.record["shm.memory"] = "1:2:3:4";
  return member;
}

std::vector<std::string> names(const std::vector<const TransportRow*>& rows) {
  std::vector<std::string> names;
  for (const TransportRow* row : rows) names.emplace_back(row == nullptr ? "" : row->name);
  return names;
}

// Goal: each peer is reached by the first row that reaches it, or by the one that was asked for.
// Method: a host's neighbour, one that published nothing, and a rank of another host.
TEST(Registry, ChoosesTheFirstThatReaches) {
  const Members members = {member_of(0, "here"), member_of(1, "here"), member_of(2, "there"),
                           member_of(3, "here", false)};
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(*choose_transports("auto", Rank{1}, members)), (Names{"shm", "", "tcp", "tcp"}));
  EXPECT_EQ(names(*choose_transports("tcp", Rank{1}, members)), (Names{"tcp", "", "tcp", "tcp"}));
  const auto refused = choose_transports("shm", Rank{1}, members);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kUnsupported);
  EXPECT_EQ(refused.error().message,
            "FARANDOLE_TRANSPORT is 'shm', by which rank 1 on here does not reach rank 2 on there; "
            "allowed is auto, shm or tcp.");
}

// Goal: rows have what their kind needs, and names that nobody else has.
TEST(Registry, RowsAreComplete) {
  std::set<std::string_view> seen = {"auto"};
  for (const TransportRow& row : transports()) {
    EXPECT_TRUE(seen.insert(row.name).second) << row.name;
    EXPECT_EQ(find_transport(row.name), &row);
    EXPECT_NE(row.cost, nullptr) << row.name;
    EXPECT_FALSE(row.summary.empty()) << row.name;
    EXPECT_EQ(row.threads == nullptr, row.create != nullptr && row.reaches != nullptr) << row.name;
    const TransportRow* tuned = find_transport(row.tuning_name);
    ASSERT_NE(tuned, nullptr) << row.name;
    EXPECT_EQ(tuned->threads, nullptr) << row.name;
  }
  EXPECT_EQ(find_transport("auto"), nullptr);
  EXPECT_EQ(find_transport(""), nullptr);
}

// Goal: a transport that stays inside a host is never what hosts talk by.
TEST(Registry, HostsTalkByWhatLeavesThem) {
  for (const std::string_view setting : {"auto", "shm", "tcp", "inproc"}) {
    EXPECT_EQ(transport_for(setting, false).name, "tcp") << setting;
  }
  EXPECT_EQ(transport_for("auto", true).name, "shm");
  EXPECT_EQ(transport_for("tcp", true).name, "tcp");
  EXPECT_EQ(transport_for("inproc", true).tuning_name, "shm");
}

}  // namespace
}  // namespace farandole
