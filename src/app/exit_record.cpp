#include "exit_record.hpp"

#include "tutti/base/uninterrupted.hpp"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace tutti {

void leave_exit_record(const OwnedFolder& folder, const ExitRecord& record) {
  if (folder.path().empty() || !folder.loss().empty()) return;
  const std::string path = folder.path() + "/exit.json";
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) return;
  nlohmann::ordered_json json{{"status", static_cast<int>(record.status)},
                              {"rank", record.rank},
                              {"host", record.host},
                              {"reason", record.reason}};
  if (record.place) {
    json["phase"] = name_of(record.place->phase);
    json["step"] = record.place->step;
  }
  const std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const ssize_t written = uninterrupted([&] { return ::write(file, text.data(), text.size()); });
  ::close(file);
  if (written != std::ssize(text)) ::unlink(path.c_str());  // a torn record would mislead its readers
}

}  // namespace tutti
