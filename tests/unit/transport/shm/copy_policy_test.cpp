// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/copy_policy.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "unit/transport/shm/ranks.hpp"

namespace farandole {
namespace {

using shm::Caches;
using shm::CopyPaths;
using shm::CopyPolicy;
using shm::TargetLines;

constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB;

CopyPolicy policy_of(std::size_t ranks, const std::string& without = "", Caches caches = {}) {
  return CopyPolicy::of(caches, ranks, *CopyPaths::all_but(without));
}

// Goal: on the processor on which the thresholds were measured they are what was measured; another
// one's caches move those that depend on caches, and only these.
// Method: the published values, then caches of twice the size.
TEST(CopyPolicy, ThresholdsFollowTheCaches) {
  const CopyPolicy two = policy_of(2), four = policy_of(4);
  EXPECT_EQ(two.slot_always_max(), 4 * kKiB);
  EXPECT_EQ(two.slot_max(), 16 * kKiB);
  EXPECT_EQ(four.slot_max(), 4 * kKiB);
  EXPECT_EQ(two.kernel_min(false), 16 * kKiB + 1);
  EXPECT_EQ(two.kernel_min(true), 128 * kKiB);
  EXPECT_EQ(two.share_min(), 128 * kKiB);
  EXPECT_EQ(four.share_min(), 512 * kKiB);
  EXPECT_EQ(two.long_pipe_min(true), 8 * kMiB);
  EXPECT_EQ(two.long_pipe_min(false), 32 * kMiB);
  EXPECT_TRUE(two.puts(kMiB, false));
  EXPECT_FALSE(two.puts(kMiB + 1, false));
  EXPECT_TRUE(two.puts(kMiB + 1, true));
  const auto at_borders = [](const CopyPolicy& policy, std::size_t scale) {
    EXPECT_TRUE(policy.cached(scale * 16 * kMiB - 1));
    EXPECT_FALSE(policy.cached(scale * 16 * kMiB));
    EXPECT_EQ(policy.to_own(scale * 2 * kMiB - 1), &copy_bytes);
    EXPECT_EQ(policy.to_own(scale * 2 * kMiB), &copy_asking_ahead);
    EXPECT_EQ(policy.to_memory(), &copy_to_memory);
  };
  at_borders(two, 1);
  at_borders(policy_of(2, "", {2 * kMiB, 64 * kMiB}), 2);
  EXPECT_EQ(four.put_lines(16 * kMiB - 1, false), TargetLines::kReceivers);
  EXPECT_EQ(four.put_lines(16 * kMiB, false), TargetLines::kNobodys);
  EXPECT_EQ(four.put_lines(48 * kMiB - 1, true), TargetLines::kSenders);
  EXPECT_EQ(four.put_lines(48 * kMiB, true), TargetLines::kNobodys);
  const CopyPolicy three = policy_of(3), others = policy_of(4, "", {2 * kMiB, 32 * kMiB});
  EXPECT_EQ(three.put_lines(1024 * kMiB, true), TargetLines::kSenders) << "three are at hand";
  EXPECT_EQ(others.put_lines(1024 * kMiB, true), TargetLines::kSenders);
}

// Goal: what the system says is used within the bounds in which the thresholds mean something.
TEST(CopyPolicy, FindsThisHostsCaches) {
  const Caches& caches = Caches::of_this_host();
  EXPECT_GE(caches.own_bytes, kMiB / 2);
  EXPECT_LE(caches.own_bytes, 2 * kMiB);
  EXPECT_GE(caches.shared_bytes, 16 * kMiB);
  EXPECT_LE(caches.shared_bytes, 64 * kMiB);
}

// Goal: each switch turns off its own way. Method: what the policy says with it off.
TEST(CopyPolicy, SwitchesTurnOffTheirWay) {
  EXPECT_EQ(policy_of(2, "slots").slot_max(), 16U);
  EXPECT_EQ(policy_of(2, "long_slots").slot_max(), 4 * kKiB);
  EXPECT_EQ(policy_of(2, "kernel").kernel_min(true), CopyPolicy::kNever);
  EXPECT_EQ(policy_of(2, "shares").share_min(), CopyPolicy::kNever);
  EXPECT_EQ(policy_of(2, "long_pipe").long_pipe_min(true), CopyPolicy::kNever);
  EXPECT_FALSE(policy_of(2, "puts").puts(1, true));
  EXPECT_EQ(policy_of(2, "past_caches").to_memory(), &copy_bytes);
  EXPECT_EQ(policy_of(2, "asks_ahead").to_own(1024 * kMiB), &copy_bytes);
  for (const auto& [name, path] : {std::pair{"in_place", &CopyPaths::in_place},
                                   {"joined_pipes", &CopyPaths::joined_pipes},
                                   {"timed", &CopyPaths::timed}}) {
    EXPECT_FALSE(policy_of(2, name).paths().*path) << name;
    EXPECT_TRUE(policy_of(2).paths().*path) << name;
  }
}

TEST(CopyPolicy, UnknownSwitchesAreNamed) {
  const auto two = CopyPaths::all_but("puts,shares");
  ASSERT_TRUE(two);
  EXPECT_FALSE(two->puts || two->shares);
  const auto unknown = CopyPaths::all_but("puts,sharing");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().kind, ErrorKind::kInvalidArgument);
  EXPECT_NE(unknown.error().message.find("'sharing'"), std::string::npos);
  EXPECT_NE(unknown.error().message.find("joined_pipes"), std::string::npos);
}

/// Two connected ranks that use all ways but some.
class Without : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const Members members = {first_.member, second_.member};
    const ShmTransport::Options options{.all_memory = true,
                                        .paths = *CopyPaths::all_but(GetParam())};
    const bool registers = GetParam().find("in_place") == std::string::npos;
    from_ = first_.join(members, options, registers);
    to_ = second_.join(members, options, registers);
    connect(*from_, *to_);
  }
  void expect_arrives(std::byte* source, std::byte* target, std::size_t bytes, bool one_sends,
                      bool has_read) {
    for (std::size_t i = 0; i < bytes; ++i) source[i] = static_cast<std::byte>(i / 7 + sequence_);
    Send send = send_to(1, ++sequence_, source, bytes);
    Receive receive = receive_from(0, sequence_, target, bytes);
    send.one_sends = receive.one_sends = one_sends;
    receive.peer_has_read = receive.peer_has_made = has_read;
    from_->post(send);
    to_->post(receive);
    for (int i = 0; i < 1000 && receive.state != TransferState::kDone; ++i) {
      (void)from_->progress();
      (void)to_->progress();
    }
    for (int i = 0; i < 4; ++i) (void)from_->progress();
    ASSERT_EQ(receive.state, TransferState::kDone) << bytes;
    EXPECT_EQ(send.state, TransferState::kDone) << bytes;
    EXPECT_EQ(std::memcmp(source, target, bytes), 0) << bytes;
  }

  ShmRank first_{0}, second_{1};
  std::unique_ptr<ShmTransport> from_, to_;
  std::uint32_t sequence_ = 0;
};

// Goal: without any one way, and without all of them, every message still arrives.
// Method: lengths on both sides of each threshold, from either kind of memory.
TEST_P(Without, MessagesArriveAllTheSame) {
  constexpr std::size_t kMost = 9 * kMiB;
  std::vector<std::byte> heap(2 * kMost);
  std::byte* const source = *first_.memory->allocate(Bytes{kMost});
  std::byte* const target = *second_.memory->allocate(Bytes{kMost});
  for (const std::size_t bytes : {kKiB / 8, 5 * kKiB, 20 * kKiB, 300 * kKiB, kMost}) {
    for (const bool one_sends : {false, true}) {
      expect_arrives(source, target, bytes, one_sends, !one_sends);
      expect_arrives(heap.data(), heap.data() + kMost, bytes, one_sends, !one_sends);
    }
  }
}

std::vector<std::string> switches() {
  std::vector<std::string> each = {""};
  std::string all = CopyPaths::names();
  std::erase(all, ' ');
  std::istringstream words(all);
  for (std::string word; std::getline(words, word, ',');) each.push_back(word);
  each.push_back(all);
  return each;
}

std::string name_of(const ::testing::TestParamInfo<std::string>& without) {
  if (without.param.empty()) return "nothing";
  return without.param.find(',') == std::string::npos ? without.param : "everything";
}

INSTANTIATE_TEST_SUITE_P(Ways, Without, ::testing::ValuesIn(switches()), name_of);

}  // namespace
}  // namespace farandole
