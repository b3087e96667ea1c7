// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "bootstrap/invalid.hpp"
#include "bootstrap/number.hpp"
#include "bootstrap/secret.hpp"
#include "bootstrap/socket.hpp"
#include "farandole/store.hpp"

namespace farandole {
namespace {

using namespace std::chrono_literals;
constexpr auto kLookPauseMin = 1ms, kLookPauseMax = 50ms;
constexpr auto kLockTime = 10s;
constexpr std::size_t kValueBytesMax = 1 << 20;

Error file_error(const std::string& doing, const std::string& where) {
  const ErrorKind kind = errno == ENOENT || errno == EACCES || errno == ENOTDIR
                             ? ErrorKind::kInvalidArgument
                             : ErrorKind::kInternal;
  return Error{kind, "cannot " + doing + " " + where + ": " + std::strerror(errno) + "."};
}

/// A file's name for a key: letters and digits stay, other bytes become "%2f".
std::string file_name(const std::string& key) {
  std::string name = "store-";
  for (const char byte : key) {
    const bool plain = std::isalnum(static_cast<unsigned char>(byte)) || byte == '-' || byte == '_';
    name += plain ? std::string(1, byte) : "%" + hexadecimal({&byte, 1});
  }
  return name;
}

/// The whole file, or none if there is none.
Result<std::optional<std::string>> contents_at(int folder, const std::string& name) {
  // A network file system may cache that there is no such file until the folder is opened anew.
  const Descriptor fresh(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const Descriptor file(::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file && errno == ENOENT) return std::optional<std::string>();
  if (!file) return file_error("open", name);
  std::string text(kValueBytesMax + 1, '\0');
  std::size_t length = 0;
  while (length < text.size()) {
    const ssize_t got = ::read(file.fd(), text.data() + length, text.size() - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_error("read", name);
    if (got == 0) break;
    length += static_cast<std::size_t>(got);
  }
  if (length > kValueBytesMax) return invalid("the store's file " + name + " is too long.");
  text.resize(length);
  return std::optional(std::move(text));
}

/// Writes under another name first, so that no reader gets half of the value.
Result<void> replace_at(int folder, const std::string& name, std::string_view value) {
  auto suffix = random_bytes(8);
  if (!suffix) return suffix.error();
  const std::string draft = name + "." + hexadecimal(*suffix);
  Result<void> outcome;
  {
    const Descriptor file(
        ::openat(folder, draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file) return file_error("create", draft);
    const bool written =
        ::write(file.fd(), value.data(), value.size()) == static_cast<ssize_t>(value.size()) &&
        fsync(file.fd()) == 0;
    if (!written) outcome = file_error("write", draft);
  }
  if (outcome && ::renameat(folder, draft.c_str(), folder, name.c_str()) != 0) {
    outcome = file_error("place", name);
  }
  if (!outcome) ::unlinkat(folder, draft.c_str(), 0);
  return outcome;
}

/// A lock between threads and processes, for as long as the descriptor is open.
Result<Descriptor> lock_at(int folder, const std::string& name) {
  Descriptor file(::openat(folder, name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return file_error("open", name);
  const Deadline deadline = Deadline::after(kLockTime);
  struct flock whole{};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  while (::fcntl(file.fd(), F_OFD_SETLK, &whole) != 0) {
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) return file_error("lock", name);
    if (deadline.passed()) {
      return Error{ErrorKind::kTimedOut, "the store's file " + name + " stayed locked for 10 s."};
    }
    std::this_thread::sleep_for(kLookPauseMin);
  }
  return file;
}

}  // namespace

Result<std::shared_ptr<FileStore>> FileStore::open(const std::filesystem::path& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return file_error("make the store's folder", folder.string());
  }
  Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status;
  if (!opened || fstat(opened.fd(), &status) != 0 ||
      ::faccessat(opened.fd(), ".", R_OK | W_OK | X_OK, AT_EACCESS) != 0) {
    return file_error("use the store's folder", folder.string());
  }
  const bool own = status.st_uid == geteuid() && (status.st_mode & 077) == 0;
  return std::shared_ptr<FileStore>(
      new FileStore(folder, opened.release(), own ? Reach::kUser : Reach::kShared));
}

FileStore::~FileStore() {
  ::close(descriptor_);
}

Result<void> FileStore::set(const std::string& key, std::string_view value) {
  if (value.size() > kValueBytesMax) {
    return invalid("the value of '" + key + "' has " + std::to_string(value.size()) +
                   " bytes; allowed are " + std::to_string(kValueBytesMax) + ".");
  }
  return replace_at(descriptor_, file_name(key), value);
}

Result<std::string> FileStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  const Deadline deadline = Deadline::after(timeout);
  Clock::duration pause = kLookPauseMin;
  for (;;) {
    const bool last = deadline.passed();
    auto found = contents_at(descriptor_, file_name(key));
    if (!found) return found.error();
    if (*found) return **std::move(found);
    if (last) return Error{ErrorKind::kTimedOut, "there is no '" + key + "' in " + name() + "."};
    std::this_thread::sleep_until(std::min(Clock::now() + pause, deadline.when()));
    pause = std::min<Clock::duration>(2 * pause, kLookPauseMax);
  }
}

Result<std::int64_t> FileStore::add(const std::string& key, std::int64_t amount) {
  const std::string name = file_name(key);
  const auto lock = lock_at(descriptor_, name + ".lock");
  if (!lock) return lock.error();
  const auto before = contents_at(descriptor_, name);
  if (!before) return before.error();
  const auto sum = add_to_text(before->value_or(""), amount, key);
  if (!sum) return sum.error();
  if (auto written = replace_at(descriptor_, name, std::to_string(*sum)); !written) {
    return written.error();
  }
  return *sum;
}

}  // namespace farandole
