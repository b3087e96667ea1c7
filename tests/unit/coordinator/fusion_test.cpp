// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fusion.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <random>

#include "unit/coordinator/job.hpp"

namespace farandole::coordinator {
namespace {

using test::tensor;

Ready ready(const std::string& name, std::int64_t count,
            const std::function<void(Ready&, TensorRequest&)>& change = {}) {
  Ready ready;
  ready.joined = std::make_shared<const RankSet>();
  TensorRequest request = *tensor(name, {count});
  if (change) change(ready, request);
  ready.response.request = std::make_shared<const TensorRequest>(std::move(request));
  return ready;
}

std::vector<Ready> grouped(const std::string& label, const std::vector<Ready>& members) {
  std::vector<Ready> changed = members;
  for (Ready& member : changed) {
    TensorRequest request = *member.response.request;
    request.group = label;
    request.group_size = static_cast<std::uint32_t>(members.size());
    member.response.request = std::make_shared<const TensorRequest>(std::move(request));
  }
  return changed;
}

// "a b|c": names of the members of each batch.
std::string shape(const std::vector<Batch>& batches) {
  std::string text;
  for (const Batch& batch : batches) {
    if (!text.empty()) text += "|";
    for (std::size_t i = 0; i < batch.members.size(); ++i) {
      text += (i == 0 ? "" : " ") + batch.members[i].response.request->name;
    }
  }
  return text;
}

// Goal: neighbours share a buffer up to the threshold, a larger tensor has its own.
// Method: sizes around a threshold of 10 float32.
TEST(Fuse, RespectsTheThreshold) {
  EXPECT_EQ(shape(fuse({}, 40)), "");
  EXPECT_EQ(shape(fuse({ready("a", 5), ready("b", 5), ready("c", 1)}, 40)), "a b|c");
  EXPECT_EQ(shape(fuse({ready("a", 5), ready("b", 6), ready("c", 4)}, 40)), "a|b c");
  EXPECT_EQ(shape(fuse({ready("a", 1), ready("b", 11), ready("c", 1)}, 40)), "a|b|c");
  EXPECT_EQ(shape(fuse({ready("a", 1), ready("b", 1)}, 0)), "a|b");
  EXPECT_EQ(shape(fuse({ready("a", 0), ready("b", 10), ready("c", 0)}, 40)), "a b c");
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(shape(fuse({ready("a", huge), ready("b", 1)}, ~std::uint64_t{0})), "a|b")
      << "bytes do not wrap around";
}

// Goal: what is large is copied nowhere, and small ones around it still share a buffer.
// Method: float32 tensors of 1 MiB and of four bytes less; the same in a group and in a device's
// memory, which fuse whatever their size.
TEST(Fuse, LeavesLargeOnesWhereTheyAre) {
  const std::int64_t large = 1 << 18;
  const std::vector<Ready> list{ready("a", 1), ready("b", large), ready("c", large - 1),
                                ready("d", large), ready("e", 1)};
  EXPECT_EQ(shape(fuse(list, std::uint64_t{128} << 20)), "a c e|b|d");
  EXPECT_EQ(shape(fuse(grouped("g", list), std::uint64_t{128} << 20)), "a b c d e");
  const auto in_device = [](Ready&, TensorRequest& r) { r.device = 0; };
  EXPECT_EQ(shape(fuse({ready("a", large, in_device), ready("b", large, in_device)}, 16u << 20)),
            "a b");
}

// Goal: only allreduces of one kind fuse.
// Method: three neighbours; the middle one differs in one thing at a time.
TEST(Fuse, KeepsKindsApart) {
  const std::vector<std::function<void(Ready&, TensorRequest&)>> changes{
      [](Ready&, TensorRequest& r) { r.dtype = DType::kInt32; },
      [](Ready&, TensorRequest& r) { r.reduction = Reduction::kMax; },
      [](Ready&, TensorRequest& r) { r.adasum = true; },
      [](Ready&, TensorRequest& r) { r.leaves_out_joined = true; },
      [](Ready&, TensorRequest& r) { r.device = 0; },
      [](Ready&, TensorRequest& r) { r.collective = Collective::kReducescatter; },
      [](Ready& ready, TensorRequest&) { ready.response.error = "an error"; },
      [](Ready& ready, TensorRequest&) {
        ready.joined = std::make_shared<const RankSet>(RankSet::of(1));
      },
  };
  for (const auto& change : changes) {
    EXPECT_EQ(shape(fuse({ready("a", 1), ready("b", 1, change), ready("c", 1)}, 40)), "a|b|c");
  }
  const auto scaled = [](double before, double after) {
    return [=](Ready&, TensorRequest& r) { r.prescale = before, r.postscale = after; };
  };
  EXPECT_EQ(shape(fuse({ready("a", 1, scaled(1, 2)), ready("b", 1, scaled(1, 2))}, 40)), "a b");
  EXPECT_EQ(shape(fuse({ready("a", 1, scaled(1, 2)), ready("b", 1, scaled(2, 2))}, 40)), "a|b");
  EXPECT_EQ(shape(fuse({ready("a", 1, scaled(1, 2)), ready("b", 1, scaled(1, 1))}, 40)), "a|b");
  const auto broadcast = [](Ready&, TensorRequest& r) { r.collective = Collective::kBroadcast; };
  EXPECT_EQ(shape(fuse({ready("a", 1, broadcast), ready("b", 1, broadcast)}, 40)), "a|b");
  const auto failed = [](Ready& one, TensorRequest&) { one.response.error = "an error"; };
  EXPECT_EQ(shape(fuse({ready("a", 1, failed), ready("b", 1, failed)}, 40)), "a|b");
}

// Goal: a group is one batch per dtype, whatever its size, and takes nobody in.
// Method: neighbours around it, its members apart, two dtypes, a large one.
TEST(Fuse, KeepsGroupsWhole) {
  std::vector<Ready> members = grouped("g", {ready("a", 100), ready("b", 1), ready("c", 1)});
  EXPECT_EQ(shape(fuse({ready("x", 1), members[0], members[1], members[2], ready("y", 1)}, 40)),
            "x|a b c|y");
  EXPECT_EQ(shape(fuse({members[0], ready("x", 1), members[1], ready("y", 1), members[2]}, 40)),
            "a b c|x|y");
  const auto integer = [](Ready&, TensorRequest& r) { r.dtype = DType::kInt32; };
  EXPECT_EQ(shape(fuse(grouped("g", {ready("a", 1), ready("b", 1, integer), ready("c", 1),
                                     ready("d", 1, integer)}),
                       40)),
            "a c|b d");
  std::vector<Ready> two = grouped("g", {ready("a", 1), ready("b", 1)});
  for (Ready& one : grouped("h", {ready("c", 1), ready("d", 1)})) two.push_back(one);
  EXPECT_EQ(shape(fuse(two, 40)), "a b|c d");
}

// Goal: nothing is lost, order is kept, and `own` changes nothing.
// Method: random lists; members in their order, batches in the order of their first members.
TEST(Fuse, KeepsOrderAndIgnoresOwn) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    std::vector<Ready> list;
    for (std::uint64_t left = random() % 20; left > 0; --left) {
      list.push_back(ready(std::string(1, static_cast<char>('a' + list.size())),
                           static_cast<std::int64_t>(random() % 8),
                           [&](Ready& one, TensorRequest& r) {
                             if (random() % 4 == 0) r.dtype = DType::kInt64;
                             if (random() % 6 == 0) r.collective = Collective::kAllgather;
                             if (random() % 9 == 0) one.response.error = "an error";
                             if (random() % 3 == 0) r.group = random() % 2 ? "g" : "h";
                           }));
    }
    const std::vector<Batch> batches = fuse(list, 64);
    std::string names, firsts;
    for (const Batch& batch : batches) {
      ASSERT_FALSE(batch.members.empty());
      std::string own;
      std::uint64_t bytes = 0;
      for (const Ready& member : batch.members) {
        const TensorRequest& request = *member.response.request;
        own += request.name;
        bytes += static_cast<std::uint64_t>(request.shape[0]) * size_of(request.dtype).value();
        ASSERT_EQ(request.group, batch.members[0].response.request->group);
      }
      ASSERT_TRUE(std::is_sorted(own.begin(), own.end()));
      const bool alone = batch.members[0].response.request->group.empty();
      ASSERT_TRUE(!alone || bytes <= 64 || batch.members.size() == 1);
      names += own;
      firsts += own[0];
    }
    ASSERT_TRUE(std::is_sorted(firsts.begin(), firsts.end()));
    std::sort(names.begin(), names.end());
    ASSERT_EQ(names, std::string("abcdefghijklmnopqrst").substr(0, list.size()));
    for (Ready& one : list) one.own = random() % 2 == 0;
    ASSERT_EQ(shape(fuse(list, 64)), shape(batches));
  }
}

}  // namespace
}  // namespace farandole::coordinator
