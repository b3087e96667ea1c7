// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "base/origin.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace farandole {
namespace {

/// What `body` returns in a child.
template <class Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Goal: what was made before a fork is somebody else's in the child and its children, and is not
// taken apart there; what a child makes is its own; the parent notices nothing.
TEST(Origin, KnowsAForkedChild) {
  const Origin origin(3);
  int deleted = 0;
  struct Counts {
    int& deleted;
    ~Counts() { ++deleted; }
  };
  DeleteAtOrigin<Counts> deleter;
  EXPECT_TRUE(origin.here());
  const int seen = in_child([&] {
    const Origin own;
    deleter(new Counts{deleted});  // leaks, as it must
    const std::string message = origin.error("allreduce").message;
    const std::string parent = "forked from rank 3, process " + std::to_string(::getppid()) + ",";
    const bool named = message.starts_with("allreduce: ") && message.find(parent) != message.npos;
    const int grandchild = in_child([&] { return !origin.here() && !own.here() ? 7 : 8; });
    return !origin.here() && own.here() && deleted == 0 && named && grandchild == 7 ? 5 : 6;
  });
  EXPECT_EQ(seen, 5);
  EXPECT_TRUE(origin.here());
  deleter(new Counts{deleted});
  EXPECT_EQ(deleted, 1);
}

}  // namespace
}  // namespace farandole
