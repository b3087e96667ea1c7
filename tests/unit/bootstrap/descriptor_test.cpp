// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: no child that a process forks keeps a socket of ours open, whenever the fork happens.
// Method: one thread opens and closes connections without a pause while another forks; every
// child looks through its descriptors.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "bootstrap/socket.hpp"
#include "unit/bootstrap/children.hpp"

namespace farandole::test {
namespace {

constexpr int kForks = 300;
constexpr int kDescriptorsMax = 1024;

bool has_a_socket() {
  for (int fd = 3; fd < kDescriptorsMax; ++fd) {
    struct stat status{};
    if (fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode)) return true;
  }
  return false;
}

TEST(Descriptor, NoForkInheritsASocket) {
  const bool before = has_a_socket();  // whoever runs the test may have left some
  auto listener = listen_at({"127.0.0.1", 0});
  ASSERT_TRUE(listener) << listener.error().message;
  auto address = numeric_address(local_endpoint(listener->fd()));
  ASSERT_TRUE(address);
  std::atomic<bool> stop{false};
  std::atomic<int> accepted{0};
  std::thread opening([&] {
    while (!stop) {
      const Descriptor there = start_connecting(*address);
      const Descriptor here = accept_connection(listener->fd());
      if (here) ++accepted;
    }
  });
  int keepers = 0;
  for (int i = 0; i < kForks && !before; ++i) {
    keepers += status_of_child(has_a_socket) == 0 ? 0 : 1;
  }
  stop = true;
  opening.join();
  ASSERT_FALSE(before);
  EXPECT_EQ(keepers, 0) << "of " << kForks;
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace farandole::test
