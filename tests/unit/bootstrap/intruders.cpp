// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "unit/bootstrap/intruders.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "bootstrap/handshake.hpp"
#include "bootstrap/wire.hpp"

namespace farandole::test {
namespace {

std::string random_text(std::mt19937& random, std::size_t length) {
  std::string text(length, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

}  // namespace

std::string nonsense(std::mt19937& random) {
  std::string hello =
      ClientHandshake(Secret("wrong"), random_text(random, kNonceBytes), {}).take_output();
  switch (random() % 8) {
    case 0:
      return "";
    case 1:
      return random_text(random, random() % 300);
    case 2:
      return hello.substr(0, random() % hello.size());
    case 3:
      return hello;
    case 4:
      return hello + random_text(random, random() % 5000);
    case 5:
      return hello + Writer().u32(100).bytes() + random_text(random, 132);
    case 6:
      return hello + Writer().u32(0xfffffff0).bytes() + random_text(random, 3000);
    default:
      return "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  }
}

void intrude(std::uint16_t port, const std::string& bytes) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    (void)!send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  close(fd);
}

}  // namespace farandole::test
