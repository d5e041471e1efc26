# The page and its interface; docs/serving.md says how to build and run it.
FROM python:3.12-slim
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY captioner captioner
RUN pip install --no-cache-dir ".[serve,heif]"
RUN useradd --create-home captioner
USER captioner
WORKDIR /home/captioner
EXPOSE 8765
HEALTHCHECK CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://localhost:8765/')"]
ENTRYPOINT ["captioner"]
CMD ["serve", "--host", "0.0.0.0"]
